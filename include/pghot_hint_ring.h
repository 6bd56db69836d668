/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hints to pghot through shared memory, for programs that hint too often for a system call each.
 * See docs/app-hints.md.
 *
 *	struct pghot_hint_ring ring;
 *
 *	if (pghot_hint_ring_open(&ring, NULL))	// once; -1: nobody reads rings
 *		return;
 *	pghot_hint_ring_push(&ring, table, table_bytes);
 *	pghot_hint_ring_close(&ring);
 *
 * A hint that finds the ring full is lost. Any number of threads may push. Open another one after a
 * fork or an exec, or when pghot_hint_ring_is_connected() says that the daemon is gone.
 *
 * The ring is a memory file of 17 pages, which the daemon makes. The first word of the first page
 * counts the slots that were taken for writing; the other pages are slots. A slot may be written as
 * number n when its turn is n, and has the turn n + 1 then; the daemon reads it and gives it the
 * turn n + PGHOT_HINT_RING_SLOTS.
 */
#ifndef PGHOT_HINT_RING_H
#define PGHOT_HINT_RING_H

#include <poll.h>
#include <sys/mman.h>

#include "pghot_hint.h"

#define PGHOT_HINT_RING_SLOTS 2048
#define PGHOT_HINT_RING_BYTES (4096 + PGHOT_HINT_RING_SLOTS * sizeof(struct pghot_hint_slot))

struct pghot_hint_slot {
	uint64_t turn;
	uint64_t address;
	uint64_t length;
	uint64_t unused;
};

struct pghot_hint_ring {
	uint64_t *head;
	struct pghot_hint_slot *slots;
	int fd; /* while it is open, the daemon reads */
};

/* Asks the daemon for a ring: the descriptor of its memory, or -1 with errno. */
static inline int pghot_hint_ring_ask(int connection)
{
	struct {
		uint32_t magic, pid, flags, nr;
	} question = { PGHOT_HINT_MAGIC, 0, PGHOT_HINT_FLAG_RING, 0 };
	struct pghot_hint_answer answer;
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { &answer, sizeof(answer) };
	struct msghdr message;
	int memory;

	if (send(connection, &question, sizeof(question), MSG_NOSIGNAL) < 0)
		return -1;
	memset(&message, 0, sizeof(message));
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = CMSG_LEN(sizeof(int));
	if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) < 0)
		return -1;
	if (message.msg_controllen < CMSG_LEN(sizeof(int)) ||
	    control.header.cmsg_type != SCM_RIGHTS) {
		errno = EOPNOTSUPP;
		return -1;
	}
	memcpy(&memory, CMSG_DATA(&control.header), sizeof(int));
	return memory;
}

static inline void pghot_hint_ring_close(struct pghot_hint_ring *ring)
{
	munmap(ring->head, PGHOT_HINT_RING_BYTES);
	close(ring->fd);
}

/*
 * A ring for this process: 0, or -1 with errno, EOPNOTSUPP if the daemon gives none. Without a
 * path, the daemon listens where it does by default.
 */
static inline int pghot_hint_ring_open(struct pghot_hint_ring *ring, const char *path)
{
	void *mapped = MAP_FAILED;
	int fd, memory, error;

	fd = pghot_hint_connect(path);
	if (fd < 0)
		return -1;
	memory = pghot_hint_ring_ask(fd);
	if (memory >= 0)
		mapped = mmap(NULL, PGHOT_HINT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			      memory, 0);
	error = errno;
	if (memory >= 0)
		close(memory);
	if (mapped == MAP_FAILED) {
		close(fd);
		errno = error;
		return -1;
	}
	ring->fd = fd;
	ring->head = (uint64_t *)mapped;
	ring->slots = (struct pghot_hint_slot *)((char *)mapped + 4096);
	return 0;
}

/* Hints one range. 0, or -1 with EAGAIN if the ring is full: then it is lost. */
static inline int pghot_hint_ring_push(struct pghot_hint_ring *ring, const void *address,
				       size_t length)
{
	uint64_t number = __atomic_load_n(ring->head, __ATOMIC_RELAXED);

	for (;;) {
		struct pghot_hint_slot *slot = &ring->slots[number % PGHOT_HINT_RING_SLOTS];
		uint64_t turn = __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE);

		if ((int64_t)(turn - number) < 0) {
			errno = EAGAIN;
			return -1;
		}
		if (turn != number) {
			/* Another thread took this number. */
			number = __atomic_load_n(ring->head, __ATOMIC_RELAXED);
			continue;
		}
		if (!__atomic_compare_exchange_n(ring->head, &number, number + 1, 1,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		slot->address = (uintptr_t)address;
		slot->length = length;
		__atomic_store_n(&slot->turn, number + 1, __ATOMIC_RELEASE);
		return 0;
	}
}

/* Whether the daemon still reads. A system call: ask when the ring is full. */
static inline int pghot_hint_ring_is_connected(const struct pghot_hint_ring *ring)
{
	struct pollfd poll_fd = { .fd = ring->fd };

	return poll(&poll_fd, 1, 0) >= 0 && !poll_fd.revents;
}

#endif
