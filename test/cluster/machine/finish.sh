# Runs in the new root file system, with the files of this directory, kernel.deb
# and nothing mounted; leaves vmlinuz and initrd in /image.
set -e
cd /image
dpkg-deb -x kernel.deb kernel
mv kernel/boot/vmlinuz-* vmlinuz
release=$(ls kernel/lib/modules)
modules=/lib/modules/$release
mkdir -p /lib/modules
mv "kernel/$modules" /lib/modules/

# Of the drivers, the virtual ones alone.
find "$modules/kernel/drivers" -mindepth 1 -maxdepth 1 ! -name net ! -name virtio -exec rm -r {} +
find "$modules/kernel/drivers/net" -mindepth 1 -maxdepth 1 -type d -exec rm -r {} +
depmod "$release"

mkdir -p initrd/bin initrd/modules
cp /bin/busybox initrd/bin/
cp init initrd/
chmod 755 initrd/init
number=100
for name in virtio_pci 9pnet_virtio 9p overlay virtio_net; do
  for file in $(modprobe --set-version "$release" --show-depends "$name" | sed -n 's/^insmod //p'); do
    ls initrd/modules | grep -q -- "-${file##*/}$" || cp "$file" "initrd/modules/$number-${file##*/}"
    number=$((number + 1))
  done
done
(cd initrd && find . | busybox cpio -o -H newc) > initrd.cpio

cp guest.service /etc/systemd/system/
# They look for work at every start and reload, and there is none.
rm /lib/systemd/system-generators/*
# Or every start is the first one, at which systemd takes stock of its units.
systemd-machine-id-setup
echo machine > /etc/hostname
: > /etc/resolv.conf
rm -rf kernel kernel.deb initrd /var/cache/apt/* /var/lib/apt/lists/*
