import "reflect-metadata";
import { DataSource } from "typeorm";
import { Cart, CartItem, Session, Token, User } from "./entities";
import { CreateTables1700000000000 } from "./migrations/1700000000000-CreateTables";

/** pg takes host, port, user and database from PGHOST, PGPORT, PGUSER and PGDATABASE. */
export const AppDataSource = new DataSource({
	type: "postgres",
	entities: [User, Session, Token, Cart, CartItem],
	migrations: [CreateTables1700000000000],
	// Generate keys with gen_random_uuid(), which PostgreSQL has without an extension.
	uuidExtension: "pgcrypto",
	installExtensions: false,
});
