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
 * The ring is a memory file of 17 pages. The first word of the first page counts the slots that
 * were taken for writing; the other pages are slots. A slot may be written as number n when its
 * turn is n, and has the turn n + 1 then; the daemon reads it and gives it the turn n +
 * PGHOT_HINT_RING_SLOTS.
 */
#ifndef PGHOT_HINT_RING_H
#define PGHOT_HINT_RING_H

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

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

/* A memory file that can become neither shorter nor longer, or -1. */
static inline int pghot_hint_ring_memory(void)
{
	/*
	 * MFD_CLOEXEC | MFD_ALLOW_SEALING, and below F_ADD_SEALS with
	 * F_SEAL_SEAL | _SHRINK | _GROW, by
	 * number: the C library hides their names unless _GNU_SOURCE is defined. */
	int fd = (int)syscall(SYS_memfd_create, "pghot-hints", 1u | 2u);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)PGHOT_HINT_RING_BYTES) || fcntl(fd, 1033, 1 | 2 | 4)) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

/* Sends the memory over the connection and waits until the daemon has taken it. 0 or -1. */
static inline int pghot_hint_ring_offer(int connection, int memory)
{
	struct {
		uint32_t magic, pid, flags, nr;
	} offer = { PGHOT_HINT_MAGIC, 0, 1 | 2, 0 };
	struct {
		uint32_t magic, refusal;
		uint64_t pages, refused;
	} answer;
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { &offer, sizeof(offer) };
	struct msghdr message;
	ssize_t got;

	memset(&control, 0, sizeof(control));
	memset(&message, 0, sizeof(message));
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &memory, sizeof(int));
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0)
		return -1;
	got = recv(connection, &answer, sizeof(answer), 0);
	if (got < 0)
		return -1;
	if ((size_t)got == sizeof(answer) && answer.magic == PGHOT_HINT_MAGIC && !answer.refused)
		return 0;
	errno = EOPNOTSUPP;
	return -1;
}

static inline void pghot_hint_ring_close(struct pghot_hint_ring *ring)
{
	munmap(ring->head, PGHOT_HINT_RING_BYTES);
	close(ring->fd);
}

/*
 * A new ring for this process: 0, or -1 with errno, EOPNOTSUPP if the daemon is too old. Without a
 * path, the daemon listens where it does by default.
 */
static inline int pghot_hint_ring_open(struct pghot_hint_ring *ring, const char *path)
{
	int fd, memory, result, error;
	void *mapped;

	fd = pghot_hint_connect(path);
	if (fd < 0)
		return -1;
	memory = pghot_hint_ring_memory();
	mapped = memory < 0 ? MAP_FAILED
			    : mmap(NULL, PGHOT_HINT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				   memory, 0);
	if (mapped == MAP_FAILED) {
		error = errno;
		if (memory >= 0)
			close(memory);
		close(fd);
		errno = error;
		return -1;
	}
	ring->fd = fd;
	ring->head = (uint64_t *)mapped;
	ring->slots = (struct pghot_hint_slot *)((char *)mapped + 4096);
	for (uint64_t n = 0; n < PGHOT_HINT_RING_SLOTS; n++)
		ring->slots[n].turn = n;
	result = pghot_hint_ring_offer(fd, memory);
	error = errno;
	close(memory);
	if (result)
		pghot_hint_ring_close(ring);
	errno = error;
	return result;
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
