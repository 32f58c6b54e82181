import { DrizzleQueryError } from 'drizzle-orm/errors';
import { DatabaseError } from 'pg';

/** The error of the server, which Drizzle wraps into one that shows the query. */
export function serverError(error: unknown): DatabaseError | undefined {
	const cause = error instanceof DrizzleQueryError ? error.cause : error;
	return cause instanceof DatabaseError ? cause : undefined;
}

export class StaleDocumentError extends Error {
	override name = 'StaleDocumentError';
}

/**
 * The one row that an update or delete returned.  None means that it has expired, or was deleted,
 * since it was read; Drizzle itself takes that for a success.
 */
export function theRow<Row>([row]: Row[]): Row {
	if (row === undefined) {
		throw new StaleDocumentError('the document has expired or was deleted');
	}
	return row;
}
