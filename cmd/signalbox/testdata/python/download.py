def download_attachment(attachment, dest_dir):
    response = requests.get(attachment["url"])

    # Verify size before processing
    if len(response.content) != attachment["size"]:
        raise Exception(
            f"Size mismatch — expected {attachment['size']} bytes, "
            f"got {len(response.content)} bytes"
        )

    # Verify digest before saving
    digest = "sha256:" + hashlib.sha256(response.content).hexdigest()
    if digest != attachment["digest"]:
        raise Exception("Digest mismatch — file may be corrupted or tampered")

    # Use server-sanitized filename from Content-Disposition if available
    filename = attachment["filename"]
    cd = response.headers.get("Content-Disposition", "")
    if 'filename="' in cd:
        filename = cd.split('filename="')[1].split('"')[0]

    filepath = os.path.join(dest_dir, filename)
    with open(filepath, "wb") as f:
        f.write(response.content)

    return filepath
