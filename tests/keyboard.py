"""A page by keyboard alone: Tab reaches every control, and shows where it is."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

PRESSES_MAX: Final = 300
"""Presses of Tab after which a page is a trap."""

AT: Final = """() => {
  const on = document.activeElement;
  if (!on.closest("main")) return null;
  on.dataset.reached = "yes";
  const { outlineStyle, outlineWidth } = getComputedStyle(on);
  const { width, height, bottom, top } = on.getBoundingClientRect();
  const isOnScreen = width > 0 && height > 0 && bottom > 0 && top < innerHeight;
  const name = on.ariaLabel ?? on.labels?.[0]?.textContent
    ?? (on.getAttribute("aria-labelledby") && document.getElementById(
      on.getAttribute("aria-labelledby")).textContent) ?? on.textContent;
  const isSeen = outlineStyle !== "none" && parseFloat(outlineWidth) > 0 && isOnScreen;
  return { name: name.trim(), isSeen };
}"""
"""What has the focus within the page: its name, and whether a person sees that."""
CONTROLS: Final = """document.querySelectorAll(
    "main :is(a[href], button, input, select, textarea, summary, [tabindex='0'])")"""
MARKED: Final = f"() => {CONTROLS}.forEach((one) => (one.dataset.there = 'yes'))"
"""What comes while somebody walks need not be passed."""
UNREACHED: Final = f"""() => [...{CONTROLS}]
  .filter((one) => one.dataset.there && !one.dataset.reached)
  .filter((one) => !one.disabled && one.checkVisibility())
  .filter((one) => one.type !== "radio" || one.checked)
  .map((one) => one.outerHTML.slice(0, 200))"""
"""Controls that Tab did not come by. Of radio buttons it comes to the chosen one."""


async def walk(page: Page) -> list[str]:
    """Press Tab from the first to the last control of the page; what was wrong on the way."""
    faults: list[str] = []
    await page.evaluate(MARKED)
    await page.locator("main").focus()
    for _ in range(PRESSES_MAX):
        await page.keyboard.press("Tab")
        at = await page.evaluate(AT)
        if at is None:
            unreached = await page.evaluate(UNREACHED)
            return faults + [f"not reached: {one}" for one in unreached]
        if not at["isSeen"]:
            faults.append(f"nobody sees the focus on {at['name']!r}")
    return [*faults, f"{PRESSES_MAX} times Tab do not lead through it"]


async def tab_to(page: Page, name: str) -> None:
    """Press Tab from the beginning of the page until what is called so has the focus."""
    await page.locator("main").focus()
    passed = []
    for _ in range(PRESSES_MAX):
        await page.keyboard.press("Tab")
        at = await page.evaluate(AT)
        if at is None:
            break
        if at["name"].startswith(name):
            return
        passed.append(at["name"])
    raise AssertionError(f"{name} is not reached by Tab: {passed}")
