-- Selection.
CREATE TABLE sink (auction BIGINT, price BIGINT) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
