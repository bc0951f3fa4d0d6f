-- The highest bid of every 10 s.
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS top, window_end AS e
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS m
ON b.price = m.top
WHERE b.`dateTime` BETWEEN m.e - INTERVAL '10' SECOND AND m.e;
