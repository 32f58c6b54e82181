-- DDL that checks existing rows also checks expired documents on disk; see "What sees
-- expired documents" in README.  After a purge, the DDL succeeds.

-- CREATE TABLE ... PARTITION OF and ATTACH PARTITION check the default partition.
-- ATTACH PARTITION also checks the table that it attaches.
CREATE TABLE parted (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE parted_default PARTITION OF parted DEFAULT;
SELECT ttl_docs.adopt('parted', 60);
CREATE TABLE attached (LIKE parted INCLUDING DEFAULTS);
SELECT ttl_docs.adopt('attached', 60);
-- ADD EXCLUDE, ADD PRIMARY KEY and ALTER DOMAIN
CREATE DOMAIN number AS int;
CREATE TABLE twice (id int, n number, doc jsonb);
SELECT ttl_docs.adopt('twice', 60);

SET ttl_docs.clock_offset = -100;
INSERT INTO parted VALUES (1, '{}');
INSERT INTO attached VALUES (5, '{}');
INSERT INTO twice VALUES (5, 7, '{}'), (5, NULL, '{}');
RESET ttl_docs.clock_offset;
SELECT (SELECT count(*) FROM parted) AS parted, (SELECT count(*) FROM attached) AS attached,
       (SELECT count(*) FROM twice) AS twice;

CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE other (LIKE parted INCLUDING DEFAULTS);
ALTER TABLE parted ATTACH PARTITION other FOR VALUES IN (1);
ALTER TABLE parted ATTACH PARTITION attached FOR VALUES IN (2);
ALTER TABLE twice ADD EXCLUDE (id WITH =);
ALTER TABLE twice ADD PRIMARY KEY (id);
ALTER DOMAIN number ADD CONSTRAINT large CHECK (value > 10);
ALTER DOMAIN number ADD CONSTRAINT large CHECK (value > 10) NOT VALID;
ALTER DOMAIN number VALIDATE CONSTRAINT large;
ALTER DOMAIN number SET NOT NULL;

CALL ttl_docs.purge('parted');
CALL ttl_docs.purge('attached');
CALL ttl_docs.purge('twice');
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
ALTER TABLE parted ATTACH PARTITION other FOR VALUES IN (3);
ALTER TABLE parted ATTACH PARTITION attached FOR VALUES IN (2);
ALTER TABLE twice ADD EXCLUDE (id WITH =);
ALTER TABLE twice ADD PRIMARY KEY (id);
ALTER DOMAIN number VALIDATE CONSTRAINT large;
ALTER DOMAIN number SET NOT NULL;
DROP TABLE parted, twice;
DROP DOMAIN number;
