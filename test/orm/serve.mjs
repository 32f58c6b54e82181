// Answers the calls of behaviours.py and of stores.py, one JSON object a line, with the functions of an
// adapter.

import { createInterface } from 'node:readline';

// What a driver reports; ORMs wrap its error.  An ORM may have codes of its own: names are their SQLSTATEs.
function describe(error, names) {
	let cause = error;
	while (cause && !/^[0-9A-Z]{5}$/.test(cause.code ?? '')) {
		cause = cause.parent ?? cause.original ?? cause.cause ?? cause.previous;
	}
	return { sqlstate: names[cause?.code] ?? cause?.code ?? null, message: String(cause?.message ?? error?.message ?? error) };
}

export async function serve(adapter, names = {}) {
	for await (const line of createInterface({ input: process.stdin })) {
		const { call, args } = JSON.parse(line);
		let answer;
		try {
			answer = { result: (await adapter[call](...args)) ?? null };
		} catch (error) {
			answer = { error: describe(error, names) };
		}
		process.stdout.write(`${JSON.stringify(answer)}\n`);
	}
	await adapter.close();
}
