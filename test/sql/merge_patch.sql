-- merge_patch(): JSON merge patch (RFC 7396)

-- The test cases of appendix A of the RFC
SELECT target, patch, ttl_docs.merge_patch(target::jsonb, patch::jsonb) AS result, ttl_docs.merge_patch(target::jsonb, patch::jsonb) = expected::jsonb AS as_expected
  FROM (VALUES
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', '{}'),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', 'null', 'null'),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ('[1,2]', '{"a":"b","c":null}', '{"a":"b"}'),
    ('{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}')) AS v(target, patch, expected);
-- The example of section 3
SELECT ttl_docs.merge_patch('{
    "title": "Goodbye!",
    "author": {"givenName": "John", "familyName": "Doe"},
    "tags": ["example", "sample"],
    "content": "This will be unchanged"}', '{
    "title": "Hello!",
    "phoneNumber": "+01-123-456-7890",
    "author": {"familyName": null},
    "tags": ["example"]}') =
    '{
    "title": "Hello!",
    "author": {"givenName": "John"},
    "tags": ["example"],
    "content": "This will be unchanged",
    "phoneNumber": "+01-123-456-7890"}' AS as_expected;

-- Other cases
SELECT target, patch, ttl_docs.merge_patch(target::jsonb, patch::jsonb) AS result, ttl_docs.merge_patch(target::jsonb, patch::jsonb) = expected::jsonb AS as_expected
  FROM (VALUES
    ('{}', '{}', '{}'),
    ('{}', '{"a":null}', '{}'),
    ('1', '{}', '{}'),
    ('null', '{"a":{"b":null}}', '{"a":{}}'),
    ('{"a":1}', '1', '1'),
    ('{"a":1}', '{"a":{}}', '{"a":{}}'),
    ('{"a":{"b":1}}', '{"a":{}}', '{"a":{"b":1}}'),
    ('{"a":{"b":1}}', '{"a":[]}', '{"a":[]}'),
    ('{"a":[1]}', '{"a":{"b":null,"c":1}}', '{"a":{"c":1}}'),
    ('{"a":{"b":1}}', '{"a":{"b":{"c":{"d":null,"e":[null]}}}}', '{"a":{"b":{"c":{"e":[null]}}}}'),
    ('{"a":1,"b":{"x":1,"y":{"z":1}},"c":3}', '{"b":{"y":{"z":null,"w":2},"x":null},"d":false}', '{"a":1,"b":{"y":{"w":2}},"c":3,"d":false}'),
    ('{"":1,"b":2}', '{"":null,"bb":3}', '{"b":2,"bb":3}'),
    ('{"a":1.0}', '{"a":1.00}', '{"a":1.00}'),
    ('{"ü":1,"aa":2,"b":3}', '{"ü":{"ü":"ü"},"b":null}', '{"ü":{"ü":"ü"},"aa":2}')) AS v(target, patch, expected);
-- NULL arguments
SELECT ttl_docs.merge_patch(NULL, '{}') IS NULL AS no_target, ttl_docs.merge_patch('{}', NULL) IS NULL AS no_patch;
-- In an UPDATE, also of long values
CREATE TABLE m (id int, doc jsonb);
INSERT INTO m SELECT i, jsonb_build_object('n', i, 'long', (SELECT jsonb_object_agg('key ' || k, md5(k::text)) FROM generate_series(1, 1000) AS k)) FROM generate_series(1, 3) AS i;
UPDATE m SET doc = ttl_docs.merge_patch(doc, jsonb_build_object('long', jsonb_build_object('key 500', NULL, 'key ' || id, id), 'n', NULL));
SELECT id, (SELECT count(*) FROM jsonb_object_keys(doc -> 'long')) AS keys, doc -> 'long' -> ('key ' || id) AS patched, doc -> 'long' -> 'key 500' AS gone,
       doc -> 'long' ->> 'key 999' = md5('999') AS kept, doc ? 'n' AS has_n FROM m ORDER BY id;
DROP TABLE m;
-- Many patches, compared with the rule of the RFC in PL/pgSQL
CREATE FUNCTION by_the_rule(target jsonb, patch jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    name text;
    value jsonb;
BEGIN
    IF jsonb_typeof(patch) <> 'object' THEN
        RETURN patch;
    END IF;
    IF jsonb_typeof(target) IS DISTINCT FROM 'object' THEN
        target := '{}';
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(patch) LOOP
        IF value = 'null' THEN
            target := target - name;
        ELSE
            target := target || jsonb_build_object(name, by_the_rule(target -> name, value));
        END IF;
    END LOOP;
    RETURN target;
END $$;
CREATE FUNCTION some_json(seed bigint, depth int) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE WHEN depth = 0 OR seed % 5 = 0 THEN (ARRAY['null', '1', '"x"', '[null, {"a": null}]', '{}', 'true']::jsonb[])[seed % 6 + 1]
                ELSE (SELECT jsonb_object_agg((ARRAY['a', 'b', 'cc', 'd'])[(seed / i) % 4 + 1], some_json((seed * 31 + i * 17) % 100003, depth - 1)) FROM generate_series(1, 3) AS i) END;
$$;
SELECT count(*), count(*) FILTER (WHERE ttl_docs.merge_patch(t, p) = by_the_rule(t, p)) AS as_by_the_rule
  FROM (SELECT some_json(i * 7 + 1, 3) AS t, some_json(i * 13 + 2, 3) AS p FROM generate_series(1, 500) AS i) AS v;
DROP FUNCTION some_json(bigint, int), by_the_rule(jsonb, jsonb);

-- Deep documents are merged as far as the stack allows.  Deeper ones are an error.
CREATE TABLE deep AS SELECT (repeat('{"a":', n) || '{"n": 1}' || repeat('}', n))::jsonb AS doc, (repeat('{"a":', n) || '{"m": 2}' || repeat('}', n))::jsonb AS patch FROM (VALUES (3000)) AS v(n);
SELECT ttl_docs.merge_patch(doc, patch) = replace(doc::text, '1', '1, "m": 2')::jsonb AS merged FROM deep;
SELECT ttl_docs.merge_patch('{}', patch) = patch AS created FROM deep;
SET max_stack_depth = '100kB';
\set VERBOSITY sqlstate
SELECT ttl_docs.merge_patch(doc, patch) IS NULL FROM deep;
SELECT ttl_docs.merge_patch('{}', patch) IS NULL FROM deep;
\set VERBOSITY default
RESET max_stack_depth;
SELECT ttl_docs.merge_patch(doc, patch) IS NULL AS is_null FROM deep;
DROP TABLE deep;
