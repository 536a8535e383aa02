/*
 * Logs are added to by every batch and purged in ranges: their space must be free again before the next range comes, whatever the server's defaults are
 * for tables that grow. Thresholds are in rows: a chunk of state is about a page.
 */
ALTER TABLE stream.offset_entry SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.commit_entry SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.progress_entry SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.state_size SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.state_change SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.state_snapshot SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE stream.state_undo SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 250, autovacuum_vacuum_cost_delay = 0);
