-- Bids of each bidder in every 10 s of processing time.
CREATE TABLE sink (bidder BIGINT, bids BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}', 'counts' = '1');
CREATE VIEW timed AS SELECT *, PROCTIME() AS p FROM bid;
INSERT INTO sink
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(p), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
