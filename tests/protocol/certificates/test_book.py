"""The book of certificates: who was taken back, for as long as that matters."""

from __future__ import annotations

from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.book import Book
from tests.protocol.certificates.test_authority import DAY, NOW


def test_a_book_tells_who_was_taken_back_since_a_list_and_forgets_what_is_out_of_time() -> None:
    book = Book().given("a", "1", NOW + DAY, now_ms=NOW).given("b", "2", NOW + DAY, now_ms=NOW)
    assert book.taken("c", now_ms=NOW) is book
    replaced = book.given("a", "3", NOW + 9 * DAY, now_ms=NOW)
    assert replaced.after(0) == ["a"]
    assert replaced.held["a"].serial == "3"
    gone = replaced.taken("b", now_ms=NOW)
    assert gone.after(1) == ["b"]
    assert gone.after(2) == []
    assert books.parse(books.text_of(gone)) == gone
    assert books.parse("") == Book()
    later = gone.taken("a", now_ms=NOW + 2 * DAY)
    assert [one.serial for one in later.revoked] == ["3"]
    assert later.number == 3
