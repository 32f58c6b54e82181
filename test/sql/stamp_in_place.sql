-- The trigger overwrites the system columns in the tuple if they fit, and forms a new
-- tuple otherwise.  For tables and rows of every kind, both must store the same: the
-- columns of the user as they were sent, and the stamp that follows from the document.
\set VERBOSITY terse

-- Compares all rows of a table with what was sent.  "sent" is the document and the
-- user's columns as text.
CREATE FUNCTION wrong(t regclass, default_ttl int, sent text DEFAULT 'note')
RETURNS TABLE (id text, what text) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        SELECT id::text, concat_ws(' ',
            CASE WHEN _ts NOT BETWEEN clock_timestamp() - interval '10 min' AND clock_timestamp() THEN '_ts' END,
            CASE WHEN _ttl IS DISTINCT FROM ttl_docs.document_ttl(doc) THEN '_ttl' END,
            CASE WHEN _slot IS DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, %s) THEN '_slot' END,
            CASE WHEN (doc ->> 'sent') IS DISTINCT FROM %s THEN 'columns' END) AS what
          FROM %s $q$, default_ttl, sent, t) || ' ORDER BY 1';
END $$;
CREATE FUNCTION mistakes(t regclass, default_ttl int DEFAULT 1000, sent text DEFAULT 'note::text') RETURNS text LANGUAGE sql AS
    $$ SELECT count(*) || ' rows' || coalesce(', wrong: ' || string_agg(id || ' ' || what, ', ') FILTER (WHERE what <> ''), '')
         FROM wrong(t, default_ttl, sent) $$;
-- Inserts documents of every kind, with notes of every length
CREATE FUNCTION fill(t regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    kinds text[] = ARRAY['{}', '{"ttl": 500}', '{"ttl": -1}', '{"ttl": null}'];
BEGIN
    EXECUTE format('DELETE FROM %s', t);
    FOR n IN 0..40 LOOP
        FOR i IN 1..4 LOOP
            EXECUTE format('INSERT INTO %s (id, doc, note) VALUES ($1, $2, $3)', t)
                USING n * 10 + i - 1,
                kinds[i]::jsonb || CASE n % 3 WHEN 0 THEN '{}'::jsonb ELSE jsonb_build_object('sent', repeat('y', n * 7)) END,
                CASE n % 3 WHEN 0 THEN NULL ELSE repeat('y', n * 7) END;
        END LOOP;
    END LOOP;
    RETURN mistakes(t);
END $$;
-- Changes these documents: the document, only a column, nothing, the ttl
CREATE FUNCTION change(t regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %s SET doc = doc || ''{"sent": "new"}'', note = ''new'' WHERE note IS NOT NULL AND length(note) %% 2 = 0', t);
    EXECUTE format('UPDATE %s SET note = NULL, doc = doc - ''sent'' WHERE note = ''new'' AND doc ? ''ttl''', t);
    EXECUTE format('UPDATE %s SET _ts = DEFAULT, _slot = 7', t);
    EXECUTE format('UPDATE %s SET doc = doc || ''{"ttl": 700}'' WHERE note IS NULL AND doc ? ''ttl''', t);
    EXECUTE format('UPDATE %s SET doc = doc - ''ttl'' WHERE note IS NOT NULL', t);
    RETURN mistakes(t);
END $$;

-- A new table, and an adopted table; columns that are added and dropped later
SELECT ttl_docs.create_collection('plain', 1000);
ALTER TABLE plain ADD COLUMN note text;
SELECT fill('plain'), change('plain');
ALTER TABLE plain ADD COLUMN after1 int DEFAULT 5, ADD COLUMN after2 text, ADD COLUMN after3 bigint NOT NULL DEFAULT 6;
SELECT change('plain'), fill('plain');
SELECT DISTINCT after1, after2, after3 FROM plain;
ALTER TABLE plain DROP COLUMN after1;
SELECT change('plain'), fill('plain'), change('plain');
CREATE TABLE adopted (flag boolean, id int, gone text DEFAULT 'gone', tiny "char", note text, doc jsonb, gone2 int);
INSERT INTO adopted VALUES (true, -1, DEFAULT, 'x', NULL, '{}');
ALTER TABLE adopted DROP COLUMN gone;
SELECT ttl_docs.adopt('adopted', 1000);
ALTER TABLE adopted DROP COLUMN gone2;
SELECT fill('adopted'), change('adopted');

-- Values that clients send for the system columns
SET client_min_messages = error;
INSERT INTO plain (id, doc, _ts, _ttl, _slot) VALUES ('all', '{}', 'infinity', 5, 5), ('own', '{"ttl": 500}', '-infinity', 5, NULL),
    ('same', '{"ttl": 500}', '-infinity', 500, 5), ('never', '{"ttl": -1}', 'epoch', 5, NULL), ('null', '{}', NULL, NULL, NULL)
    RETURNING id, _ttl, _slot = ttl_docs_internal.slot(_ts, _ttl, 1000) AS slot, _ts BETWEEN now() AND clock_timestamp() AS ts;
RESET client_min_messages;
SELECT mistakes('plain');

-- Tables without the default of _slot, with the system columns in another order, and
-- with other columns between them
ALTER TABLE plain ALTER COLUMN _slot DROP DEFAULT;
SELECT fill('plain'), change('plain');
CREATE TABLE ordered (id int, _slot bigint DEFAULT 1, _ttl int, note text, _ts timestamptz, doc jsonb);
SELECT ttl_docs.adopt('ordered', 1000);
SELECT fill('ordered'), change('ordered');
CREATE TABLE between (id int, _ts timestamptz, note text, _ttl int, doc jsonb, _slot bigint DEFAULT 1, last text);
SELECT ttl_docs.adopt('between', 1000);
SELECT fill('between'), change('between');

-- Rows that are inserted into their own table again: the tuple comes from the table, and
-- may have been stored before a column was added
INSERT INTO between SELECT * FROM between WHERE id < 20;
SELECT mistakes('between');
CREATE TABLE again (id int, doc jsonb, note text);
INSERT INTO again SELECT n, '{}' FROM generate_series(1, 5) AS n;
SELECT ttl_docs.adopt('again', 1000);
INSERT INTO again SELECT * FROM again;
ALTER TABLE again ADD COLUMN more int DEFAULT 9;
INSERT INTO again SELECT * FROM again RETURNING id, more, _slot = ttl_docs_internal.slot(_ts, _ttl, 1000) AS slot;
SELECT mistakes('again'), count(*) FILTER (WHERE more = 9) AS more FROM again;

-- Stored generated columns, before and after the system columns
CREATE TABLE generated (id int, doc jsonb, twice int GENERATED ALWAYS AS (id * 2) STORED, note text);
SELECT ttl_docs.adopt('generated', 1000);
ALTER TABLE generated ADD COLUMN thrice int GENERATED ALWAYS AS (id * 3) STORED,
    ADD COLUMN written timestamptz GENERATED ALWAYS AS (_ts) STORED;
SELECT fill('generated'), change('generated');
SELECT count(*) FROM generated WHERE twice = id * 2 AND thrice = id * 3 AND written = _ts;

-- Partitions with the same columns as their parent, and with other ones
CREATE TABLE parts (id int, doc jsonb, note text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_2 (note text, gone int, doc jsonb, id int);
ALTER TABLE parts_2 DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (100) TO (200);
CREATE TABLE parts_3 PARTITION OF parts DEFAULT;
SELECT ttl_docs.adopt('parts', 1000);
SELECT fill('parts'), change('parts');
UPDATE parts SET id = id + 60;
SELECT mistakes('parts'), (SELECT count(*) FROM parts_2) AS in_2;
INSERT INTO parts_2 (id, doc) VALUES (150, '{}'), (151, '{"ttl": 5}');
INSERT INTO parts (id, doc, note) SELECT id, doc, note FROM parts_2;
SELECT mistakes('parts');

-- Other triggers: they change the row before ours, and see it afterwards.  The return
-- value of a trigger may be another row, and even the old one.
SELECT ttl_docs.create_collection('triggered', 1000);
ALTER TABLE triggered ADD COLUMN note text;
CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id LIKE '%0' AND TG_OP = 'UPDATE' THEN RETURN OLD; END IF;
    IF NEW.id LIKE '%1' THEN RETURN NEW; END IF;
    NEW.note := NEW.note || '!';
    NEW.doc := NEW.doc || jsonb_build_object('sent', NEW.note);
    NEW._ts := 'infinity';
    NEW._slot := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER before_row BEFORE INSERT OR UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION before_row();
CREATE TABLE seen (LIKE triggered);
CREATE FUNCTION after_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO seen SELECT NEW.*; RETURN NULL; END $$;
CREATE TRIGGER after_row AFTER INSERT OR UPDATE ON triggered FOR EACH ROW WHEN (NEW._slot IS DISTINCT FROM 7) EXECUTE FUNCTION after_row();
SELECT fill('triggered');
SELECT count(*) FROM seen, triggered WHERE seen.* = triggered.*;
TRUNCATE seen;
SELECT change('triggered');
SELECT count(*) FROM seen JOIN triggered USING (id, _ts) WHERE seen.* IS DISTINCT FROM triggered.*;
DROP TRIGGER before_row ON triggered;
TRUNCATE seen;
SELECT fill('triggered'), change('triggered');
SELECT count(*) FROM seen JOIN triggered USING (id, _ts) WHERE seen.* IS DISTINCT FROM triggered.*;

-- ON CONFLICT, MERGE, COPY with the trigger, and a row that an expired one makes wait
INSERT INTO triggered (id, doc, note) VALUES ('u', '{"sent": "a"}', 'a');
INSERT INTO triggered (id, doc, note) VALUES ('u', '{"sent": "b"}', 'b')
    ON CONFLICT (id) DO UPDATE SET doc = excluded.doc, note = excluded.note, _slot = excluded._slot
    RETURNING note, _slot = ttl_docs_internal.slot(_ts, _ttl, 1000) AS slot;
MERGE INTO triggered AS t USING (VALUES ('u', '{"sent": "c"}'::jsonb, 'c'), ('v', '{"sent": "d", "ttl": 5}', 'd'), ('w', '{"sent": "e"}', 'e')) AS s (id, doc, note)
    ON s.id = t.id WHEN MATCHED THEN UPDATE SET doc = s.doc, note = s.note
    WHEN NOT MATCHED THEN INSERT (id, doc, note) VALUES (s.id, s.doc, s.note);
COPY triggered (id, doc, note) FROM stdin WHERE id <> '';
x	{"sent": "f"}	f
y	{"sent": "g", "ttl": -1}	g
\.
SET ttl_docs.clock_offset = -2000;
INSERT INTO triggered (id, doc) VALUES ('old', '{}');
RESET ttl_docs.clock_offset;
INSERT INTO triggered (id, doc, note) VALUES ('old', '{"sent": "h"}', 'h');
SELECT mistakes('triggered');

-- A restore keeps _ts, and replication all columns, in place as well.
SET row_security = off;
INSERT INTO plain (id, doc, _ts, _slot) VALUES ('restored', '{}', '2020-01-01 00:00:00Z', 5);
SET session_replication_role = replica;
INSERT INTO plain (id, doc, _ts, _slot) VALUES ('replicated', '{}', '2020-01-02 00:00:00Z', 5);
RESET session_replication_role;
SELECT id, _ts = '2020-01-01 00:00:00Z' AS first, _ts = '2020-01-02 00:00:00Z' AS second,
       _slot = ttl_docs_internal.slot(_ts, _ttl, 1000) AS slot FROM plain WHERE id LIKE 're%' ORDER BY id;
RESET row_security;

-- A row that the trigger has not seen is never due: the default of _slot is later than
-- all times, and does not count as an invalid ttl.
CREATE TABLE filled_before (LIKE parts INCLUDING DEFAULTS);
INSERT INTO filled_before (id, doc) VALUES (1, '{}');
SELECT _slot > extract(epoch FROM timestamptz '294276-12-31') AS never_due, _ts BETWEEN now() - interval '10 min' AND now() AS ts FROM filled_before;
DROP TABLE filled_before;

DROP TABLE plain, adopted, ordered, between, again, generated, parts, triggered, seen;
DROP FUNCTION wrong, mistakes, fill, change, before_row, after_row;
