// Drizzle, and the calls of ../behaviours.py.  The tables have the columns of src/ttl.ts.

import { generateDrizzleJson, generateMigration } from 'drizzle-kit/api';
import { eq, relations, sql, TransactionRollbackError } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { integer, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { Pool } from 'pg';
import { serve } from '../serve.mjs';
import { ttlColumns, ttlIndex } from './src/ttl.ts';

const carts = pgTable(
	'carts',
	{ id: text().primaryKey(), owner: text().notNull().unique(), doc: jsonb().notNull(), ...ttlColumns },
	(table) => [ttlIndex(table)],
);
const items = pgTable('items', {
	id: integer().primaryKey(),
	cartId: text('cart_id').notNull().references(() => carts.id, { onDelete: 'cascade' }),
	sku: text().notNull(),
});
const schema = {
	carts,
	items,
	cartRelations: relations(carts, ({ many }) => ({ items: many(items) })),
	itemRelations: relations(items, ({ one }) => ({ cart: one(carts, { fields: [items.cartId], references: [carts.id] }) })),
};
const db = drizzle({ client: new Pool(), schema });

serve({
	async migrate() {
		for (const statement of await generateMigration(generateDrizzleJson({}), generateDrizzleJson(schema))) {
			await db.execute(sql.raw(statement));
		}
		await db.execute(sql`select ttl_docs.adopt('carts', 3600)`);
		// test/drizzle-kit.test.ts tests the schema tool.
		return { stale_save: null, stale_destroy: null, schema_tool: false, hides_orphans: false };
	},
	async create(id, owner, doc) {
		await db.insert(carts).values({ id, owner, doc });
	},
	async create_many(rows) {
		await db.insert(carts).values(rows.map(([id, owner, doc]) => ({ id, owner, doc })));
	},
	read: (id) => db.query.carts.findFirst({ columns: { id: true, owner: true, doc: true }, where: eq(carts.id, id) }),
	async list() {
		return (await db.select().from(carts).orderBy(carts.id)).map((cart) => cart.id);
	},
	count: () => db.$count(carts),
	async update(id, doc) {
		return (await db.update(carts).set({ doc }).where(eq(carts.id, id))).rowCount;
	},
	async update_all(doc) {
		return (await db.update(carts).set({ doc })).rowCount;
	},
	async touch(id) {
		return (await db.update(carts).set({ _ts: sql`default` }).where(eq(carts.id, id))).rowCount;
	},
	async remove(id) {
		return (await db.delete(carts).where(eq(carts.id, id))).rowCount;
	},
	async upsert(id, owner, doc) {
		await db.insert(carts).values({ id, owner, doc }).onConflictDoUpdate({ target: carts.id, set: { owner, doc } });
	},
	async add_item(id, cartId, sku) {
		await db.insert(items).values({ id, cartId, sku });
	},
	async items_of(id) {
		const cart = await db.query.carts.findFirst({ where: eq(carts.id, id), with: { items: { orderBy: items.id } } });
		return cart && cart.items.map((item) => item.sku);
	},
	async carts_of_items() {
		const found = await db.query.items.findMany({ with: { cart: true }, orderBy: items.id });
		return found.map((item) => [item.sku, item.cart?.id ?? null]);
	},
	async failing_transaction(id) {
		await db.transaction(async (tx) => {
			await tx.insert(carts).values({ id, owner: 'ann', doc: {} });
			tx.rollback();
		}).catch((error) => {
			if (!(error instanceof TransactionRollbackError)) {
				throw error;
			}
		});
	},
	close: () => db.$client.end(),
});
