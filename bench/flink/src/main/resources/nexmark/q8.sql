-- Persons who opened an auction in the 10 s window in which they registered.
CREATE TABLE sink (id BIGINT, name STRING, stime TIMESTAMP(3)) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT p.id, p.name, p.s
FROM (
  SELECT id, name, window_start AS s, window_end AS e
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS p
JOIN (
  SELECT seller, window_start AS s, window_end AS e
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS a
ON p.id = a.seller AND p.s = a.s AND p.e = a.e;
