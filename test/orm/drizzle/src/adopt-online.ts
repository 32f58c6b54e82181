// Makes large tables collections, while the application uses them.
import { sql } from 'drizzle-orm';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';

/**
 * Run this once, before the migration that calls adopt().  migrate() runs all migrations in one
 * transaction, and adopt_concurrently() commits several times.
 */
export async function adoptOnline(db: NodePgDatabase<any>) {
	await db.execute(sql`call ttl_docs.adopt_concurrently('visits', 1800)`);
}
