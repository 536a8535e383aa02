/*
 * compat.h: PostgreSQL 16, 17 and 18 called as 15 is. Names and arguments that changed stand here and nowhere else; each file that meets one includes it.
 * Changed query trees are another matter: src/plan/outer.c.
 * Danger: a macro named like the function it calls hides the later arguments; pass those of 15.
 */
#ifndef STREAM_COMPAT_H
#define STREAM_COMPAT_H

#include "access/genam.h"
#include "access/htup_details.h"
#include "common/int.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/prep.h"
#include "parser/parse_relation.h"
#include "rewrite/rewriteManip.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/regproc.h"

/* ---- 16 ---- */

#if PG_VERSION_NUM >= 160000
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_proc.h"
#include "varatt.h"

#define pg_class_ownercheck(id, role) object_ownercheck(RelationRelationId, id, role)
#define pg_database_aclcheck(id, role, mode) object_aclcheck(DatabaseRelationId, id, role, mode)
#define pg_database_ownercheck(id, role) object_ownercheck(DatabaseRelationId, id, role)
#define pg_extension_ownercheck(id, role) object_ownercheck(ExtensionRelationId, id, role)
#define pg_foreign_server_aclcheck(id, role, mode) object_aclcheck(ForeignServerRelationId, id, role, mode)
#define pg_proc_aclcheck(id, role, mode) object_aclcheck(ProcedureRelationId, id, role, mode)

#define compat_insert_index_tuples(target, slot, estate, update, no_error, conflict, arbiters) \
	ExecInsertIndexTuples(target, slot, estate, update, no_error, conflict, arbiters, false)
#define CompatIndexUpdate TU_UpdateIndexes
#define compat_updates_indexes(which) ((which) != TU_None)
#define compat_update_index_tuples(target, slot, estate, which) \
	(void) ExecInsertIndexTuples(target, slot, estate, true, false, NULL, NIL, (which) == TU_Summarizing)
#define flatten_join_alias_vars(query, node) flatten_join_alias_vars(NULL, query, node)
#define get_relids_in_jointree(node, joins) get_relids_in_jointree(node, joins, joins)
#define pgstat_fetch_stat_local_beentry(index) pgstat_get_local_beentry_by_index(index)
#define stringToQualifiedNameList(text) stringToQualifiedNameList(text, NULL)

/* Permissions to check stood in the entries of the range table; now they are a list of their own beside it. */
#define compat_check_permissions(query) ExecCheckPermissions((query)->rtable, (query)->rteperminfos, true)
#define compat_check_as(query, rte, role) (getRTEPermissionInfo((query)->rteperminfos, rte)->checkAsUser = (role))
#define compat_add_range_table(query, more) CombineRangeTables(&(query)->rtable, &(query)->rteperminfos, (more)->rtable, (more)->rteperminfos)
#define compat_heap_update(table, tid, tuple) simple_heap_update(table, tid, tuple, &(TU_UpdateIndexes){TU_None})
#else
#define compat_insert_index_tuples ExecInsertIndexTuples
#define CompatIndexUpdate bool
#define compat_updates_indexes(which) (which)
#define compat_update_index_tuples(target, slot, estate, which) (void) ExecInsertIndexTuples(target, slot, estate, true, false, NULL, NIL)
#define compat_check_permissions(query) ExecCheckRTPerms((query)->rtable, true)
#define compat_check_as(query, rte, role) ((rte)->checkAsUser = (role))
#define compat_add_range_table(query, more) ((query)->rtable = list_concat((query)->rtable, (more)->rtable))
#define compat_heap_update(table, tid, tuple) simple_heap_update(table, tid, tuple)
#endif

/* ---- 17 ---- */

#if PG_VERSION_NUM >= 170000
#define IsBackgroundWorker AmBackgroundWorkerProcess()
#define MY_LOCAL_XID (MyProc->vxid.lxid)
#define MY_PROC_NUMBER MyProcNumber
#define compat_wait_set(size) CreateWaitEventSet(NULL, size)
#define ReplicationSlotCreate(name, of_database, persistency, two_phase) ReplicationSlotCreate(name, of_database, persistency, two_phase, false, false)
#define compat_decoded_tuple(tuple) (tuple)
#else
#define MY_LOCAL_XID (MyProc->lxid)
#define MY_PROC_NUMBER (MyProc->pgprocno)
#define compat_wait_set(size) CreateWaitEventSet(CurrentMemoryContext, size)
#define compat_decoded_tuple(buffer) ((buffer) ? &(buffer)->tuple : NULL)
#endif

#if PG_VERSION_NUM >= 180000
#define compat_foreign_path(root, rel, total) \
	create_foreignscan_path(root, rel, NULL, (rel)->rows, 0, (rel)->baserestrictcost.startup, total, NIL, (rel)->lateral_relids, NULL, NIL, NIL)
#elif PG_VERSION_NUM >= 170000
#define compat_foreign_path(root, rel, total) \
	create_foreignscan_path(root, rel, NULL, (rel)->rows, (rel)->baserestrictcost.startup, total, NIL, (rel)->lateral_relids, NULL, NIL, NIL)
#else
#define compat_foreign_path(root, rel, total) \
	create_foreignscan_path(root, rel, NULL, (rel)->rows, (rel)->baserestrictcost.startup, total, NIL, (rel)->lateral_relids, NULL, NIL)
#endif

/* ---- 18 ---- */

#if PG_VERSION_NUM >= 180000
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"

#define pg_attribute_noreturn() __attribute__((noreturn))
#define expandRTE(rte, index, up, location, dropped, names, vars) expandRTE(rte, index, up, VAR_RETURNING_DEFAULT, location, dropped, names, vars)
#define heap_copy_minimal_tuple(tuple) heap_copy_minimal_tuple(tuple, 0)
#define heap_form_minimal_tuple(desc, values, nulls) heap_form_minimal_tuple(desc, values, nulls, 0)
#define index_beginscan(table, index, snapshot, keys, orderbys) index_beginscan(table, index, snapshot, NULL, keys, orderbys)
#define RelationGetPrimaryKeyIndex(rel) RelationGetPrimaryKeyIndex(rel, false)
#define ReplicationSlotAcquire(name, nowait) ReplicationSlotAcquire(name, nowait, true)
#define get_op_btree_interpretation(id) get_op_index_interpretation(id)
#define OpBtreeInterpretation OpIndexInterpretation
#define ROWCOMPARE_NE COMPARE_NE
#define compat_strategy(interpretation) ((interpretation)->cmptype)
#define compat_run(desc) ExecutorRun(desc, ForwardScanDirection, 0)
#define compat_check_index(target, slot, estate, found, arbiters) ExecCheckIndexConstraints(target, slot, estate, found, &(ItemPointerData){0}, arbiters)
#else
#define compat_check_index ExecCheckIndexConstraints
#define compat_strategy(interpretation) ((interpretation)->strategy)
#define compat_run(desc) ExecutorRun(desc, ForwardScanDirection, 0, true)
#endif

#endif
