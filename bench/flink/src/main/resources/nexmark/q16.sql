-- Distinct bidders and auctions of a day and channel by price band.
CREATE TABLE sink (channel STRING, `day` STRING, `minute` STRING, b0 BIGINT, b1 BIGINT, b2 BIGINT, b3 BIGINT,
                   p0 BIGINT, p1 BIGINT, p2 BIGINT, p3 BIGINT, a0 BIGINT, a1 BIGINT, a2 BIGINT, a3 BIGINT)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), MAX(DATE_FORMAT(`dateTime`, 'HH:mm')),
       COUNT(*),
       COUNT(*) FILTER (WHERE price < 10000),
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(*) FILTER (WHERE price >= 1000000),
       COUNT(DISTINCT bidder),
       COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
       COUNT(DISTINCT auction),
       COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
       COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
       COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid
GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
