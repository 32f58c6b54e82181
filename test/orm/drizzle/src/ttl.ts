// The columns and the index of every collection of ttl_docs, for use in table definitions.
import { getTableName, sql } from 'drizzle-orm';
import { bigint, index, integer, timestamp } from 'drizzle-orm/pg-core';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';

/** A document, which may have its own ttl: seconds, or -1 for never. */
export type Expiring<Document> = Document & { ttl?: number | null };

/**
 * The system columns, exactly as ttl_docs.adopt() creates them, because drizzle-kit would change any
 * difference.  The server replaces the values that a client sends.  The columns have explicit names,
 * because `casing: 'snake_case'` would turn _ts into "ts".
 */
export const ttlColumns = {
	_ts: timestamp('_ts', { withTimezone: true }).default(sql`now()`).notNull(),
	_ttl: integer('_ttl'),
	// Not a bigint, because JSON.stringify() fails for one; no code calculates with this value.
	_slot: bigint('_slot', { mode: 'number' }).default(sql`'1000000000000000'`),
};

/** The purge index, by which the purge finds expired documents. */
export function ttlIndex(table: { _slot: AnyPgColumn }) {
	const name = getTableName(table._slot.table);
	return index(`${name}__slot_idx`).on(table._slot);
}

/** Makes a select expression for the time at which a document expires; null means never. */
export function expiresAt(table: { _ts: AnyPgColumn; _ttl: AnyPgColumn }) {
	const name = getTableName(table._ts.table);
	return sql`ttl_docs.expires_at(${`"${name}"`}, ${table._ts}, ${table._ttl})`.mapWith(
		(value: string): Date | null => (value === 'infinity' ? null : new Date(value)),
	);
}
