-- Hot items: the auctions with the most bids in the last 10 s, every 2 s.
CREATE TABLE sink (auction BIGINT, num BIGINT) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT c.auction, c.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS s, window_end AS e
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS c
JOIN (
  SELECT MAX(num) AS top, s, e
  FROM (
    SELECT auction, COUNT(*) AS num, window_start AS s, window_end AS e
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) GROUP BY s, e
) AS m
ON c.s = m.s AND c.e = m.e AND c.num >= m.top;
