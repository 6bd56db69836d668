/* SPDX-License-Identifier: BSD-2-Clause */
/* An application in C that hints: the header's functions, callable from Rust. */
#include "pghot_hint.h"

int hotset_hint_connect(const char *path)
{
	return pghot_hint_connect(path);
}

int hotset_hint_pages(int fd, char *base, const uint32_t *pages, size_t nr, size_t page_bytes)
{
	struct pghot_hint_range ranges[PGHOT_HINT_RANGES_MAX];

	/* One alone, the others in bulk. */
	if (nr && pghot_hint(fd, base + *pages++ * page_bytes, page_bytes))
		return -1;
	for (size_t left = nr ? nr - 1 : 0; left;) {
		size_t now = left < PGHOT_HINT_RANGES_MAX ? left : PGHOT_HINT_RANGES_MAX;

		for (size_t i = 0; i < now; i++) {
			ranges[i].address = (uintptr_t)base + pages[i] * page_bytes;
			ranges[i].length = page_bytes;
		}
		if (pghot_hint_bulk(fd, ranges, now))
			return -1;
		pages += now;
		left -= now;
	}
	return 0;
}
