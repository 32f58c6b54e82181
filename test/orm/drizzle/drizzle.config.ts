import { defineConfig } from 'drizzle-kit';

export default defineConfig({
	dialect: 'postgresql',
	schema: './src/schema.ts',
	out: './drizzle',
	dbCredentials: {
		host: process.env.PGHOST!,
		port: Number(process.env.PGPORT),
		user: process.env.PGUSER!,
		database: process.env.PGDATABASE!,
		// Left out, drizzle-kit insists on TLS, and says nothing where the server has none.
		ssl: false,
	},
});
