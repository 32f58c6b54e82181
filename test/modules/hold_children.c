/*-------------------------------------------------------------------------
 *
 * hold_children.c
 *		Stops processes that the postmaster starts, before they do anything, so that a
 *		test can change settings that they have inherited.
 *
 * While the file hold_children is in the data directory, each new process creates
 * a file held.PID there, and waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static void wait_in_child(void);

void
_PG_init(void)
{
	if (process_shared_preload_libraries_in_progress)
		(void) pthread_atfork(NULL, NULL, wait_in_child);
}

static void
wait_in_child(void)
{
	pid_t		postmaster = getppid();
	struct stat status;
	char		name[32];
	int			file;

	if (stat("hold_children", &status) != 0)
		return;
	snprintf(name, sizeof(name), "held.%d", (int) getpid());
	file = open(name, O_CREAT | O_WRONLY, 0600);
	if (file >= 0)
		close(file);
	while (stat("hold_children", &status) == 0 && getppid() == postmaster)
		usleep(10000);
}
