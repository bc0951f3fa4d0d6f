-- Distinct bidders and auctions of a day by price band.
CREATE TABLE sink (`day` STRING, b0 BIGINT, b1 BIGINT, b2 BIGINT, b3 BIGINT, p0 BIGINT, p1 BIGINT, p2 BIGINT, p3 BIGINT,
                   a0 BIGINT, a1 BIGINT, a2 BIGINT, a3 BIGINT)
WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}', 'columns' = '-,0,-,1,2,3,4,5,6,7,8,9,10,11,12');
INSERT INTO sink
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'),
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
GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
