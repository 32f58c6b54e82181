// MikroORM: entities, its schema generator, and the calls of ../behaviours.py.

import { EntitySchema, MikroORM, raw } from '@mikro-orm/postgresql';
import { serve } from '../serve.mjs';

class Cart {}
class Item {}

const cart = new EntitySchema({
	class: Cart,
	tableName: 'carts',
	properties: {
		id: { type: 'text', primary: true },
		owner: { type: 'text', unique: 'carts_owner_key' },
		doc: { type: 'json' },
		items: { kind: '1:m', entity: () => Item, mappedBy: 'cart', orderBy: { id: 'asc' } },
	},
});
const item = new EntitySchema({
	class: Item,
	tableName: 'items',
	properties: {
		id: { type: 'integer', primary: true, autoincrement: false },
		sku: { type: 'text' },
		cart: { kind: 'm:1', entity: () => Cart, fieldName: 'cart_id', deleteRule: 'cascade', updateRule: 'no action' },
	},
});

const orm = await MikroORM.init({
	entities: [cart, item],
	dbName: process.env.PGDATABASE,
	host: process.env.PGHOST,
	port: Number(process.env.PGPORT),
	user: process.env.PGUSER,
	discovery: { disableDynamicFileAccess: true },
	schemaGenerator: { ignoreSchema: ['ttl_docs', 'ttl_docs_internal'], skipTables: ['carts'] },
});
// Its identity map would return objects that have expired: take a new one for each request.
const em = () => orm.em.fork();
let loaded;

serve({
	async migrate() {
		// skipTables also skips the table here, so a migration creates it.
		await orm.em.execute('CREATE TABLE carts (id text PRIMARY KEY, owner text NOT NULL UNIQUE, doc jsonb NOT NULL)');
		await orm.schema.createSchema();
		await orm.em.execute(`SELECT ttl_docs.adopt('carts', 3600)`);
		return { stale_save: 'nothing', stale_destroy: 'nothing', schema_tool: true, hides_orphans: true };
	},
	async create(id, owner, doc) {
		const now = em();
		now.create(Cart, { id, owner, doc });
		await now.flush();
	},
	async create_many(rows) {
		await em().insertMany(Cart, rows.map(([id, owner, doc]) => ({ id, owner, doc })));
	},
	async read(id) {
		const found = await em().findOne(Cart, { id });
		return found && { id: found.id, owner: found.owner, doc: found.doc };
	},
	async list() {
		return (await em().find(Cart, {}, { orderBy: { id: 'asc' } })).map((found) => found.id);
	},
	count: () => em().count(Cart),
	update: (id, doc) => em().nativeUpdate(Cart, { id }, { doc }),
	update_all: (doc) => em().nativeUpdate(Cart, {}, { doc }),
	// Setting a column to itself renews the row.
	touch: (id) => em().nativeUpdate(Cart, { id }, { doc: raw('doc') }),
	remove: (id) => em().nativeDelete(Cart, { id }),
	async upsert(id, owner, doc) {
		await em().upsert(Cart, { id, owner, doc });
	},
	async load(id) {
		const now = em();
		loaded = { em: now, cart: await now.findOneOrFail(Cart, { id }) };
	},
	async save(doc) {
		loaded.cart.doc = doc;
		await loaded.em.flush();
	},
	async destroy() {
		await loaded.em.removeAndFlush(loaded.cart);
	},
	async add_item(id, cart_id, sku) {
		await em().insert(Item, { id, cart: cart_id, sku });
	},
	async items_of(id) {
		const found = await em().findOne(Cart, { id }, { populate: ['items'] });
		return found && found.items.getItems().map((each) => each.sku);
	},
	async carts_of_items() {
		const items = await em().find(Item, {}, { populate: ['cart'], orderBy: { id: 'asc' } });
		return items.map((each) => [each.sku, each.cart?.id ?? null]);
	},
	async failing_transaction(id) {
		const failure = new Error('roll back');
		await em().transactional(async (now) => {
			now.create(Cart, { id, owner: 'ann', doc: {} });
			await now.flush();
			throw failure;
		}).catch((error) => {
			if (error !== failure) {
				throw error;
			}
		});
	},
	async schema_changes() {
		return (await orm.schema.getUpdateSchemaSQL()).split('\n').filter((line) => line.trim() !== '');
	},
	close: () => orm.close(),
});
