-- The ten highest bids of each auction.
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),
                   extra STRING, n BIGINT) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}', 'columns' = '0,2,7');
INSERT INTO sink
SELECT auction, bidder, price, channel, url, `dateTime`, extra, n
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS n FROM bid)
WHERE n <= 10;
