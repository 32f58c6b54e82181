// Sequelize: models, sync() for the schema, and the calls of ../behaviours.py.

import { DataTypes, Sequelize } from 'sequelize';
import { serve } from '../serve.mjs';

const statements = [];
const sequelize = new Sequelize(process.env.PGDATABASE, process.env.PGUSER, '', {
	dialect: 'postgres',
	host: process.env.PGHOST,
	port: process.env.PGPORT,
	logging: (statement) => statements.push(statement),
	define: { timestamps: false },
});

const Cart = sequelize.define('cart', {
	id: { type: DataTypes.TEXT, primaryKey: true },
	// Name the constraint: sync({ alter: true }) adds an unnamed one each time.
	owner: { type: DataTypes.TEXT, allowNull: false, unique: 'carts_owner_key' },
	doc: { type: DataTypes.JSONB, allowNull: false },
});
const Item = sequelize.define('item', {
	id: { type: DataTypes.INTEGER, primaryKey: true },
	sku: { type: DataTypes.TEXT, allowNull: false },
});
Cart.hasMany(Item, { foreignKey: { name: 'cart_id', allowNull: false }, onDelete: 'CASCADE' });
Item.belongsTo(Cart, { foreignKey: { name: 'cart_id', allowNull: false }, onDelete: 'CASCADE' });

const plain = (cart) => cart && { id: cart.id, owner: cart.owner, doc: cart.doc };
let loaded;

serve({
	async migrate() {
		await sequelize.sync();
		await sequelize.query(`SELECT ttl_docs.adopt('carts', 3600)`);
		return { stale_save: 'nothing', stale_destroy: 'nothing', schema_tool: true, hides_orphans: false };
	},
	async create(id, owner, doc) {
		await Cart.create({ id, owner, doc });
	},
	async create_many(rows) {
		await Cart.bulkCreate(rows.map(([id, owner, doc]) => ({ id, owner, doc })));
	},
	async read(id) {
		return plain(await Cart.findByPk(id));
	},
	async list() {
		return (await Cart.findAll({ order: ['id'] })).map((cart) => cart.id);
	},
	count: () => Cart.count(),
	async update(id, doc) {
		return (await Cart.update({ doc }, { where: { id } }))[0];
	},
	async update_all(doc) {
		return (await Cart.update({ doc }, { where: {} }))[0];
	},
	// Setting a column to itself renews the row.
	async touch(id) {
		return (await Cart.update({ doc: sequelize.col('doc') }, { where: { id } }))[0];
	},
	remove: (id) => Cart.destroy({ where: { id } }),
	async upsert(id, owner, doc) {
		await Cart.upsert({ id, owner, doc });
	},
	async load(id) {
		loaded = await Cart.findByPk(id);
	},
	async save(doc) {
		await loaded.update({ doc });
	},
	async destroy() {
		await loaded.destroy();
	},
	async add_item(id, cart_id, sku) {
		await Item.create({ id, cart_id, sku });
	},
	async items_of(id) {
		const cart = await Cart.findByPk(id, { include: Item, order: [[Item, 'id', 'ASC']] });
		return cart && cart.items.map((item) => item.sku);
	},
	async carts_of_items() {
		const items = await Item.findAll({ include: Cart, order: ['id'] });
		return items.map((item) => [item.sku, item.cart?.id ?? null]);
	},
	async failing_transaction(id) {
		const transaction = await sequelize.transaction();
		await Cart.create({ id, owner: 'ann', doc: {} }, { transaction });
		await transaction.rollback();
	},
	// Without "drop: false", it would drop the system columns.  It alters the type of each column to the type
	// that it has, which changes nothing, so these statements do not count.
	async schema_changes() {
		statements.length = 0;
		await sequelize.sync({ alter: { drop: false } });
		return statements.filter((text) => /DROP COLUMN|ADD COLUMN|DROP INDEX|CREATE INDEX/.test(text));
	},
	close: () => sequelize.close(),
});
