// Added to HTML pages by `surus serve --watch`: loads the page again when the application changes.
(() => {
  const { version } = document.currentScript.dataset;
  const key = "surus-watch";
  let events;
  const open = () => {
    events?.close();
    events = new EventSource("/-/watch");
    events.onmessage = ({ data }) => {
      // A page from a cache has an old version; it is loaded again once.
      if (data === version || sessionStorage.getItem(key) === data) return;
      sessionStorage.setItem(key, data);
      location.reload();
    };
    events.addEventListener("failed", () => {
      console.error("surus: the changed application cannot be booted; its log says why");
    });
  };
  // Browsers open six connections to a host; pages that are not seen need none.
  document.addEventListener("visibilitychange", () => {
    document.hidden ? events?.close() : open();
  });
  addEventListener("pagehide", () => events?.close());
  addEventListener("pageshow", (event) => event.persisted && open());
  if (!document.hidden) open();
})();
