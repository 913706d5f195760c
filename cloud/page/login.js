/* A link with a key in it (…/#key=…), such as the one in the QR code of `edgewake up --listen`: the key becomes a cookie that no script
   can read, and leaves the address and the history. What is behind the # is sent to nobody. */

export async function logInByLink() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  history.replaceState(null, "", location.pathname + location.search);
  await fetch("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${key}` } }).catch(() => {});
}
