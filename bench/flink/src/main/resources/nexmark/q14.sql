-- Computation, filter, count of a letter.
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), hours STRING, `dateTime` TIMESTAMP(3), extra STRING, c BIGINT)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT auction, bidder, 0.908 * price,
       CASE WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
            WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END,
       `dateTime`, extra, count_char(extra, 'c')
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
