-- Who sells in category 10 in OR, ID or CA: an unbounded join.
CREATE TABLE sink (name STRING, city STRING, state STRING, id BIGINT) WITH ('connector' = 'nexmark', 'kind' = 'tally', 'dir' = '${dir}');
INSERT INTO sink
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');
