-- Bids enriched from a bounded table.
CREATE TABLE side (`key` BIGINT, `value` STRING) WITH ('connector' = 'nexmark', 'kind' = 'side');
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), `value` STRING)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
FROM (SELECT *, PROCTIME() AS p FROM bid) AS b JOIN side FOR SYSTEM_TIME AS OF b.p AS s ON MOD(b.auction, 10000) = s.`key`;
