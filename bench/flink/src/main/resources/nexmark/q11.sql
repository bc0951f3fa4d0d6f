-- Bids in each session (gap 10 s) of a bidder.
CREATE TABLE sink (bidder BIGINT, bids BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT bidder, COUNT(*), SESSION_START(`dateTime`, INTERVAL '10' SECOND), SESSION_END(`dateTime`, INTERVAL '10' SECOND)
FROM bid
GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND);
