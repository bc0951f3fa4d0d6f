-- Daily statistics of each auction.
CREATE TABLE sink (auction BIGINT, `day` STRING, b0 BIGINT, b1 BIGINT, b2 BIGINT, b3 BIGINT, low BIGINT, high BIGINT, mean BIGINT, total BIGINT)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'),
       COUNT(*),
       COUNT(*) FILTER (WHERE price < 10000),
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(*) FILTER (WHERE price >= 1000000),
       MIN(price), MAX(price), AVG(price), SUM(price)
FROM bid
GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
