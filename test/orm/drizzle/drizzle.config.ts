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
		// Without this, drizzle-kit requires TLS, and gives no error message if the server has no TLS.
		ssl: false,
	},
});
