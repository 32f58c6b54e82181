import { defineConfig } from 'drizzle-kit';
import config from '../../drizzle.config.ts';

export default defineConfig({
	...config,
	schema: './tmp/pulled/schema.ts',
	out: './tmp/pulled',
});
