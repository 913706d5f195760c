/* The login page of operations, in the theme that was chosen on the pages. Who opened a link to a board, and has to log in first, comes to the board afterwards: what is behind the # no server sees. */

import { setUpTheme } from "../dom.js";

setUpTheme();
for (const link of document.querySelectorAll('a[href^="/login"]')) {
  const to = new URL(link.href);
  to.searchParams.set("next", `/${location.hash}`);
  link.href = to.href;
}
