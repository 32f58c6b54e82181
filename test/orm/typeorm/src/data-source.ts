import "reflect-metadata";
import { DataSource } from "typeorm";
import { Cart, CartItem, Session, Token, User } from "./entities";
import { CreateTables1700000000000 } from "./migrations/1700000000000-CreateTables";

/** pg takes what is not said here from PGHOST, PGPORT, PGUSER and PGDATABASE. */
export const AppDataSource = new DataSource({
	type: "postgres",
	entities: [User, Session, Token, Cart, CartItem],
	migrations: [CreateTables1700000000000],
	// gen_random_uuid() for generated keys. PostgreSQL has it; there is nothing to install.
	uuidExtension: "pgcrypto",
	installExtensions: false,
});
