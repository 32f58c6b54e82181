// Knex, a query builder: schema builder, queries, and the calls of ../behaviours.py.

import Knex from 'knex';
import { serve } from '../serve.mjs';

const knex = Knex({ client: 'pg', connection: { host: process.env.PGHOST } });

serve({
	async migrate() {
		await knex.schema.createTable('carts', (table) => {
			table.text('id').primary();
			table.text('owner').notNullable().unique();
			table.jsonb('doc').notNullable();
		});
		await knex.schema.createTable('items', (table) => {
			table.integer('id').primary();
			table.text('cart_id').notNullable().references('carts.id').onDelete('CASCADE');
			table.text('sku').notNullable();
		});
		await knex.raw(`SELECT ttl_docs.adopt('carts', 3600)`);
		// A later migration of another column leaves the system columns alone.
		await knex.schema.alterTable('carts', (table) => table.text('note'));
		return { stale_save: null, stale_destroy: null, schema_tool: false, hides_orphans: false };
	},
	async create(id, owner, doc) {
		await knex('carts').insert({ id, owner, doc });
	},
	async create_many(rows) {
		await knex('carts').insert(rows.map(([id, owner, doc]) => ({ id, owner, doc })));
	},
	read: (id) => knex('carts').first('id', 'owner', 'doc').where({ id }),
	list: () => knex('carts').orderBy('id').pluck('id'),
	async count() {
		return Number((await knex('carts').count('* as n').first()).n);
	},
	update: (id, doc) => knex('carts').where({ id }).update({ doc }),
	update_all: (doc) => knex('carts').update({ doc }),
	touch: (id) => knex('carts').where({ id }).update({ _ts: knex.raw('DEFAULT') }),
	remove: (id) => knex('carts').where({ id }).delete(),
	async upsert(id, owner, doc) {
		await knex('carts').insert({ id, owner, doc }).onConflict('id').merge();
	},
	async add_item(id, cart_id, sku) {
		await knex('items').insert({ id, cart_id, sku });
	},
	async items_of(id) {
		if (!(await knex('carts').first('id').where({ id }))) {
			return null;
		}
		return knex('items').where({ cart_id: id }).orderBy('id').pluck('sku');
	},
	async carts_of_items() {
		const rows = await knex('items').leftJoin('carts', 'carts.id', 'cart_id')
			.select('sku', 'carts.id as cart').orderBy('items.id');
		return rows.map((row) => [row.sku, row.cart]);
	},
	async failing_transaction(id) {
		const transaction = await knex.transaction();
		await transaction('carts').insert({ id, owner: 'ann', doc: {} });
		await transaction.rollback();
	},
	close: () => knex.destroy(),
});
