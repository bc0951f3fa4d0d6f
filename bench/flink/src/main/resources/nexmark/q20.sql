-- Bids with their auctions, category 10: an unbounded join.
CREATE TABLE sink (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_time TIMESTAMP(3),
                   bid_extra STRING, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
                   auction_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT,
                   auction_extra STRING) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime`, b.extra,
       a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime`, a.expires, a.seller, a.category, a.extra
FROM bid AS b JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10;
