import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import type * as schema from './schema.ts';

/** Applies all new migrations of the folder, which drizzle-kit writes, in one transaction. */
export function migrateToLatest(db: NodePgDatabase<typeof schema>, migrationsFolder = './drizzle') {
	return migrate(db, { migrationsFolder });
}
