import { DrizzleQueryError } from 'drizzle-orm/errors';
import { DatabaseError } from 'pg';

/** Returns the error of the server, which Drizzle wraps in an error that shows the query. */
export function serverError(error: unknown): DatabaseError | undefined {
	const cause = error instanceof DrizzleQueryError ? error.cause : error;
	return cause instanceof DatabaseError ? cause : undefined;
}

export class StaleDocumentError extends Error {
	override name = 'StaleDocumentError';
}

/**
 * Returns the one row of an update or delete.  Throws if there is none, because the document has
 * expired or was deleted after it was read.  Drizzle itself treats this as a success.
 */
export function theRow<Row>([row]: Row[]): Row {
	if (row === undefined) {
		throw new StaleDocumentError('the document has expired or was deleted');
	}
	return row;
}
