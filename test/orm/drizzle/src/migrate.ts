import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import type * as schema from './schema.ts';

/** Applies what is new in the folder that drizzle-kit writes, all of it in one transaction. */
export function migrateToLatest(db: NodePgDatabase<typeof schema>, migrationsFolder = './drizzle') {
	return migrate(db, { migrationsFolder });
}
