// What every collection of ttl_docs has, for table definitions to share.
import { getTableName, sql } from 'drizzle-orm';
import { bigint, index, integer, timestamp } from 'drizzle-orm/pg-core';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';

/** A document, which may have a time to live of its own: seconds, or -1 for ever. */
export type Expiring<Document> = Document & { ttl?: number | null };

/**
 * The system columns, exactly as ttl_docs.adopt() makes them: to drizzle-kit any difference is
 * something to mend.  The server writes them, whatever a client sends.  They are named here because
 * `casing: 'snake_case'` would make "ts" of a _ts.
 */
export const ttlColumns = {
	_ts: timestamp('_ts', { withTimezone: true }).default(sql`clock_timestamp()`).notNull(),
	_ttl: integer('_ttl'),
	// Nothing to calculate with, and JSON.stringify() cannot do a bigint.
	_slot: bigint('_slot', { mode: 'number' }),
};

/** The index by which expired documents are found on disk. */
export function ttlIndex(table: { _slot: AnyPgColumn }) {
	const name = getTableName(table._slot.table);
	return index(`${name}__slot_idx`).on(table._slot).where(sql`${table._slot} is not null`);
}

/** When a document expires, to be selected; null is never. */
export function expiresAt(table: { _ts: AnyPgColumn; _ttl: AnyPgColumn }) {
	const name = getTableName(table._ts.table);
	return sql`ttl_docs.expires_at(${`"${name}"`}, ${table._ts}, ${table._ttl})`.mapWith(
		(value: string): Date | null => (value === 'infinity' ? null : new Date(value)),
	);
}
