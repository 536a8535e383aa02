-- Every property of every object of the extension that a user or pg_dump could see, one a line: what an update leaves must be what an install makes.
WITH member AS (
    SELECT d.classid, d.objid, pg_catalog.pg_describe_object(d.classid, d.objid, 0) AS name
    FROM pg_catalog.pg_depend d
    WHERE d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype = 'e'
      AND d.refobjid = (SELECT oid FROM pg_catalog.pg_extension WHERE extname = 'stream_ext')
), relation AS (
    SELECT m.name, c.* FROM member m JOIN pg_catalog.pg_class c ON m.classid = 'pg_catalog.pg_class'::regclass AND c.oid = m.objid
), property AS (
    SELECT name, 'comment: ' || pg_catalog.obj_description(objid, (SELECT relname FROM pg_catalog.pg_class WHERE oid = classid)) AS value FROM member
    UNION ALL
    SELECT name, format('relation: kind %s, persistence %s, options %s, toast options %s, acl %s, row security %s', relkind, relpersistence, reloptions,
        (SELECT t.reloptions FROM pg_catalog.pg_class t WHERE t.oid = reltoastrelid), relacl, relrowsecurity) FROM relation
    UNION ALL
    SELECT name, 'view: ' || pg_catalog.pg_get_viewdef(oid) FROM relation WHERE relkind = 'v'
    UNION ALL
    SELECT r.name, format('column %s: %s %s, not null %s, default %s, storage %s, comment %s, acl %s', row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum), a.attname,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
        (SELECT pg_catalog.pg_get_expr(adbin, adrelid) FROM pg_catalog.pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum), a.attstorage,
        pg_catalog.col_description(a.attrelid, a.attnum), a.attacl)
    FROM relation r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT r.name, format('constraint %s: %s', k.conname, pg_catalog.pg_get_constraintdef(k.oid)) FROM relation r JOIN pg_catalog.pg_constraint k ON k.conrelid = r.oid
    UNION ALL
    SELECT r.name, 'index: ' || pg_catalog.pg_get_indexdef(i.indexrelid) FROM relation r JOIN pg_catalog.pg_index i ON i.indrelid = r.oid
    UNION ALL
    SELECT r.name, 'trigger: ' || pg_catalog.pg_get_triggerdef(t.oid) FROM relation r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
    UNION ALL
    SELECT r.name, 'dumped where ' || e.condition FROM relation r JOIN (SELECT unnest(extconfig) AS oid, unnest(extcondition) AS condition FROM pg_catalog.pg_extension
        WHERE extname = 'stream_ext') e USING (oid)
    UNION ALL
    SELECT m.name, format('function: %s, acl %s, result %s, arguments %s', CASE WHEN p.prokind <> 'a' THEN pg_catalog.pg_get_functiondef(p.oid) END, p.proacl,
        pg_catalog.pg_get_function_result(p.oid), pg_catalog.pg_get_function_arguments(p.oid))
    FROM member m JOIN pg_catalog.pg_proc p ON m.classid = 'pg_catalog.pg_proc'::regclass AND p.oid = m.objid
    UNION ALL
    SELECT m.name, format('aggregate: %s %s %s %s', a.aggtransfn, a.aggfinalfn, pg_catalog.format_type(a.aggtranstype, NULL), a.agginitval)
    FROM member m JOIN pg_catalog.pg_aggregate a ON m.classid = 'pg_catalog.pg_proc'::regclass AND a.aggfnoid = m.objid
    UNION ALL
    SELECT m.name, format('wrapper: %s %s %s %s', f.fdwhandler::regproc, f.fdwvalidator::regproc, f.fdwoptions, f.fdwacl)
    FROM member m JOIN pg_catalog.pg_foreign_data_wrapper f ON m.classid = 'pg_catalog.pg_foreign_data_wrapper'::regclass AND f.oid = m.objid
    UNION ALL
    SELECT m.name, format('server: %s %s %s', w.fdwname, s.srvoptions, s.srvacl)
    FROM member m JOIN pg_catalog.pg_foreign_server s ON m.classid = 'pg_catalog.pg_foreign_server'::regclass AND s.oid = m.objid
    JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
    UNION ALL
    SELECT name, 'is there' FROM member
)
SELECT name, value FROM property WHERE value IS NOT NULL ORDER BY name COLLATE "C", value COLLATE "C";
