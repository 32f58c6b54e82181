// TypeORM, and the calls of ../behaviours.py.

import typeorm from "typeorm";
import { serve } from "../serve.mjs";

const { DataSource, EntitySchema } = typeorm;

const Cart = new EntitySchema({
	name: "carts",
	columns: {
		id: { type: "text", primary: true },
		owner: { type: "text" },
		doc: { type: "jsonb" },
		_ts: { type: "timestamptz", updateDate: true, default: () => "now()", insert: false, update: false },
	},
	uniques: [{ name: "carts_owner_key", columns: ["owner"] }],
	relations: { items: { type: "one-to-many", target: "items", inverseSide: "cart" } },
});
const Item = new EntitySchema({
	name: "items",
	columns: { id: { type: "integer", primary: true }, sku: { type: "text" } },
	relations: {
		cart: {
			type: "many-to-one", target: "carts", inverseSide: "items", nullable: false, onDelete: "CASCADE",
			joinColumn: { name: "cart_id", foreignKeyConstraintName: "items_cart_id_fkey" },
		},
	},
});
const database = await new DataSource({ type: "postgres", entities: [Cart, Item], installExtensions: false }).initialize();
const carts = database.getRepository(Cart);
const items = database.getRepository(Item);
let loaded;

serve({
	async migrate() {
		await database.synchronize();
		await database.query("SELECT ttl_docs.adopt('carts', 3600)");
		// test/schema.test.ts tests the schema tool.
		return { stale_save: "inserts", stale_destroy: "nothing", schema_tool: false, hides_orphans: true };
	},
	async create(id, owner, doc) {
		await carts.insert({ id, owner, doc });
	},
	async create_many(rows) {
		await carts.insert(rows.map(([id, owner, doc]) => ({ id, owner, doc })));
	},
	read: (id) => carts.findOne({ select: { id: true, owner: true, doc: true }, where: { id } }),
	async list() {
		return (await carts.find({ order: { id: "ASC" } })).map(({ id }) => id);
	},
	count: () => carts.count(),
	async update(id, doc) {
		return (await carts.update({ id }, { doc })).affected;
	},
	async update_all(doc) {
		return (await carts.updateAll({ doc })).affected;
	},
	async touch(id) {
		return (await carts.update({ id }, {})).affected;
	},
	async remove(id) {
		return (await carts.delete({ id })).affected;
	},
	async upsert(id, owner, doc) {
		await carts.upsert({ id, owner, doc }, ["id"]);
	},
	async load(id) {
		loaded = await carts.findOneByOrFail({ id });
	},
	async save(doc) {
		await carts.save({ ...loaded, doc });
	},
	async destroy() {
		await carts.remove(loaded);
	},
	async add_item(id, cart_id, sku) {
		await items.insert({ id, sku, cart: { id: cart_id } });
	},
	async items_of(id) {
		const cart = await carts.findOne({ where: { id }, relations: { items: true }, order: { items: { id: "ASC" } } });
		return cart && cart.items.map(({ sku }) => sku);
	},
	async carts_of_items() {
		const found = await items.find({ relations: { cart: true }, order: { id: "ASC" } });
		return found.map(({ sku, cart }) => [sku, cart?.id ?? null]);
	},
	async failing_transaction(id) {
		const failure = new Error("roll back");
		await database.transaction(async (manager) => {
			await manager.insert(Cart, { id, owner: "ann", doc: {} });
			throw failure;
		}).catch((error) => {
			if (error !== failure) {
				throw error;
			}
		});
	},
	close: () => database.destroy(),
});
