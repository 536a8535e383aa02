-- Objects of the extension without a comment: there must be none.
CREATE EXTENSION stream_ext;
SELECT pg_catalog.pg_describe_object(d.classid, d.objid, 0)
FROM pg_catalog.pg_depend d
WHERE d.refclassid = 'pg_catalog.pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_catalog.pg_extension WHERE extname = 'stream_ext')
  AND d.deptype = 'e'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_description c WHERE c.classoid = d.classid AND c.objoid = d.objid AND c.objsubid = 0)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_shdescription c WHERE c.classoid = d.classid AND c.objoid = d.objid)
  AND NOT (d.classid = 'pg_catalog.pg_type'::regclass
           AND EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = d.objid AND (t.typelem <> 0 OR t.typrelid <> 0)))
ORDER BY 1;
