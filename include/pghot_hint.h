/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells pghot which memory of this process will be used soon. See docs/app-hints.md.
 *
 *	int fd = pghot_hint_connect(NULL);	// once; -1: there is nobody to tell
 *	pghot_hint(fd, table, table_bytes);	// now and then, while it is used
 *	close(fd);
 *
 * A hint is never waited for, and never does harm: with -1 for a descriptor, or a daemon that is
 * gone or busy, it is not taken, and the functions return -1 with errno set. Connect again after a
 * fork or an exec. All functions may be called by several threads at once.
 */
#ifndef PGHOT_HINT_H
#define PGHOT_HINT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PGHOT_HINT_SOCKET     "/run/pghot/hint.sock"
#define PGHOT_HINT_MAGIC      0x31484750u /* "PGH1" */
#define PGHOT_HINT_RANGES_MAX 256

/* Memory: all pages that it touches, at most 1 GiB. */
struct pghot_hint_range {
	uint64_t address;
	uint64_t length;
};

enum pghot_hint_flags {
	PGHOT_HINT_FLAG_ANSWER = 1, /* the sender waits for a struct pghot_hint_answer */
	PGHOT_HINT_FLAG_RING = 2,   /* with the message comes the descriptor of a ring */
};

struct pghot_hint_message {
	uint32_t magic;
	uint32_t pid;   /* 0: the sender */
	uint32_t flags; /* of enum pghot_hint_flags */
	uint32_t nr;
	struct pghot_hint_range ranges[PGHOT_HINT_RANGES_MAX];
};

enum pghot_hint_refusal {
	PGHOT_HINT_REFUSAL_NONE,
	PGHOT_HINT_REFUSAL_MALFORMED,
	PGHOT_HINT_REFUSAL_FOREIGN,
	PGHOT_HINT_REFUSAL_EMPTY,
	PGHOT_HINT_REFUSAL_TOO_LONG,
	PGHOT_HINT_REFUSAL_BAD_ADDRESS,
	PGHOT_HINT_REFUSAL_NO_PROCESS,
	PGHOT_HINT_REFUSAL_NO_RING,
};

struct pghot_hint_answer {
	uint32_t magic;
	uint32_t refusal; /* of enum pghot_hint_refusal: why the first refused range was */
	uint64_t pages;   /* of the lower tier in the ranges: reported */
	uint64_t refused; /* ranges */
};

/* A connection for this process, or -1. Without a path, to where the daemon listens by default. */
static inline int pghot_hint_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (!path)
		path = PGHOT_HINT_SOCKET;
	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

/*
 * Hints many ranges, up to PGHOT_HINT_RANGES_MAX with one system call. 0, or -1 with EAGAIN if the
 * daemon is behind: then some are lost.
 */
static inline int pghot_hint_bulk(int fd, const struct pghot_hint_range *ranges, size_t nr)
{
	struct pghot_hint_message message = { .magic = PGHOT_HINT_MAGIC };

	while (nr) {
		size_t now = nr < PGHOT_HINT_RANGES_MAX ? nr : PGHOT_HINT_RANGES_MAX;
		size_t bytes = now * sizeof(*ranges);

		message.nr = (uint32_t)now;
		memcpy(message.ranges, ranges, bytes);
		bytes += offsetof(struct pghot_hint_message, ranges);
		if (send(fd, &message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return -1;
		ranges += now;
		nr -= now;
	}
	return 0;
}

/* Hints one range. */
static inline int pghot_hint(int fd, const void *address, size_t length)
{
	struct pghot_hint_range range = { (uintptr_t)address, length };

	return pghot_hint_bulk(fd, &range, 1);
}

#endif
