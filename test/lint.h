/*
 * PostgreSQL's macros that cppcheck has to know, because it does not read PostgreSQL's headers.
 */
#define foreach(cell, list) \
	for ((cell) = list_head(list); (cell) != NULL; (cell) = lnext(list, cell))
#define PG_TRY()		do {
#define PG_CATCH()		} while (0); do {
#define PG_FINALLY()	} while (0); do {
#define PG_END_TRY()	} while (0)
