-- The last bid of each bidder on each auction.
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),
                   extra STRING) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}', 'columns' = '0,1,5');
INSERT INTO sink
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS n FROM bid)
WHERE n <= 1;
