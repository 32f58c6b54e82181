import { serverError } from './errors.ts';

const SERIALIZATION_FAILURE = '40001';

/**
 * Retries after a serialization failure.  An upsert fails this way if its document expires during
 * the upsert.  Use it for a single statement or a whole transaction, never for a part of one.
 */
export async function retrying<Result>(work: () => Promise<Result>, attempts = 3): Promise<Result> {
	for (let attempt = 1; ; attempt++) {
		try {
			return await work();
		} catch (error) {
			if (attempt === attempts || serverError(error)?.code !== SERIALIZATION_FAILURE) {
				throw error;
			}
		}
	}
}
